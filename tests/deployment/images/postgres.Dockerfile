# Stands for the image postgres in bin/test-image: Debian's PostgreSQL, with the same user, folders and first start.
ARG DEBIAN
FROM ${DEBIAN}
RUN groupadd --gid 999 postgres \
    && useradd --uid 999 --gid 999 --home-dir /var/lib/postgresql postgres \
    && mkdir -p /etc/postgresql-common/createcluster.d \
    && echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/none.conf \
    && apt-get update \
    && apt-get install -y --no-install-recommends postgresql \
    && install -d -o postgres -g postgres -m 1777 /var/lib/postgresql/data \
    && install -d -o postgres -g postgres -m 3777 /run/postgresql \
    && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/
COPY --chmod=0755 postgres-entrypoint /usr/local/bin/
ENV PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["postgres-entrypoint"]
