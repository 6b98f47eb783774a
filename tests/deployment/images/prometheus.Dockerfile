# Stands for the image prom/prometheus in bin/test-image: Debian's Prometheus, with the same user and folders.
ARG DEBIAN
FROM ${DEBIAN}
RUN apt-get update \
    && apt-get install -y --no-install-recommends prometheus wget \
    && rm -rf /etc/prometheus/* \
    && mkdir -p /etc/prometheus/rules \
    && install -d -o nobody -g nogroup /prometheus
USER nobody
VOLUME /prometheus
ENTRYPOINT ["/usr/bin/prometheus"]
