FROM rust:1-slim AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked

# The same Debian as rust:1-slim, and so the same libc.
FROM debian:stable-slim
# For amqps:// and https:// handlers.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin ackonce \
    && install -d -o ackonce -g ackonce /data
COPY --from=build /usr/local/bin/ackonce /usr/local/bin/
# A number, so that Kubernetes can see that it is not root.
USER 10001
# The default ledger is a file in the working directory: mount a volume here.
WORKDIR /data
VOLUME /data
ENTRYPOINT ["ackonce"]
CMD ["--help"]
