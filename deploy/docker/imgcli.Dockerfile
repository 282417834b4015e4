# The command line. Built over the packages of `./run package`:
#   docker build -f deploy/docker/imgcli.Dockerfile -t imgcli build/package
FROM debian:12-slim

# Versions are those of the packages beside this, and of Debian 12 with its security updates.
# hadolint ignore=DL3008
RUN --mount=type=bind,target=/debs \
    apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates /debs/imgcli_*.deb \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home imgcli

USER 1000
WORKDIR /home/imgcli
ENTRYPOINT ["imgcli"]
