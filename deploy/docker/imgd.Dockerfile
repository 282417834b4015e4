# The daemon with its dashboard, and imgcli to look around in it. Built over the packages of `./run package`:
#   docker build -f deploy/docker/imgd.Dockerfile -t imgd build/package
FROM debian:12-slim

# Versions are those of the packages beside this, and of Debian 12 with its security updates.
# hadolint ignore=DL3008
RUN --mount=type=bind,target=/debs \
    useradd --system --uid 999 --home-dir / --no-create-home --shell /usr/sbin/nologin imgd \
    && apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates /debs/imgd_*.deb /debs/imgcli_*.deb \
    && rm -rf /var/lib/apt/lists/*

USER 999
VOLUME /var/lib/imgd
EXPOSE 7650 7651
# Its databases need one volume that is on one machine at a time, and no second daemon on it.
ENTRYPOINT ["imgd", "--state-dir", "/var/lib/imgd", "--listen", "0.0.0.0:7650", "--web-listen", "0.0.0.0:7651"]
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s \
    CMD ["bash", "-c", "</dev/tcp/127.0.0.1/7650"]
