# The agent of a node, the trainer and its CUDA libraries. Built over the packages of `./run package --runtime`:
#   docker build -f deploy/docker/imgagent.Dockerfile -t imgagent build/package
# The driver comes from the node: docker run --gpus all, or NVIDIA's device plugin for Kubernetes.
FROM debian:12-slim

# Versions are those of the packages beside this, and of Debian 12 with its security updates.
# hadolint ignore=DL3008
RUN --mount=type=bind,target=/debs \
    useradd --system --uid 999 --home-dir / --no-create-home --shell /usr/sbin/nologin imgagent \
    && apt-get update \
    && apt-get install -y --no-install-recommends tini ca-certificates \
        /debs/imgagent_*.deb /debs/imgtrain_*.deb /debs/imgtrain-runtime-cu13_*.deb \
    && rm -rf /var/lib/apt/lists/*

ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 999
VOLUME /var/lib/imgagent
# tini takes in what is left of runs whose shim has ended. When this container ends its runs end with it, which they do
# not on a node with packages: jobs go on from their last checkpoints.
ENTRYPOINT ["tini", "--", "imgagent", "--state-dir", "/var/lib/imgagent"]
