# The worker as an image: docker build -t ackonce .
# Handlers' programs come on top (FROM ackonce), or the binary goes into their image:
#   COPY --from=ackonce /usr/local/bin/ackonce /usr/local/bin/
FROM rust:1-slim-trixie AS build
WORKDIR /src
COPY . .
# The caches are the builder's, and nothing of them comes into the image.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin ackonce \
    && install -D --strip target/release/ackonce /out/ackonce

# The same Debian as above, and so the same libc. Not a static binary on an empty image: a command needs a shell or an
# interpreter, and musl's memory allocator is slow.
FROM debian:trixie-slim
# For amqps:// and https:// handlers.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin ackonce \
    && install -d -o ackonce -g ackonce /data
COPY --from=build /out/ackonce /usr/local/bin/
# A number, so that Kubernetes can see that it is not root.
USER 10001
# The default ledger is a file in the working directory: mount a volume here. What is lost with the container is
# remembered no more, and done again.
WORKDIR /data
VOLUME /data
# A drain. As process 1 ackonce is its own init, so none is needed.
STOPSIGNAL SIGTERM
# No HEALTHCHECK: it is the same for `publish` and `ledger`, and what asks depends on --listen. docker-compose.yml has one.
ENTRYPOINT ["ackonce"]
CMD ["--help"]
