# The image of gpuward; docs/image.md says what is in it and how to verify it.

# Built and run with Python 3.13 of Debian 13: a wheel and its bytecode fit one minor version of
# Python and one C library. The two images keep their interpreter in different places, so what is
# carried over is a plain folder for PYTHONPATH. A virtual environment would point at the builder's.
FROM python:3.13-slim-trixie@sha256:3dd7cc108ec1493442514f5c2a871af6af0ec31d768ff6e378a93340c3b3db5f AS builder
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ONLY_BINARY=:all: \
    PIP_ROOT_USER_ACTION=ignore


# A layer of their own: they change less often than gpuward does.
FROM builder AS dependencies
COPY requirements/image.txt .
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip install --require-hashes --no-compile --target=tree --requirement=image.txt
# Of the Kubernetes client gpuward uses the configuration and the connection (cluster/connection.py).
# Its models and API classes are loaded one by one, by name, and none of them is; no dependency is
# run as a command or tested here.
RUN rm -r tree/bin tree/kubernetes/aio tree/kubernetes/client/api tree/kubernetes/client/apis \
    && find tree/kubernetes/client/models -name '*.py' ! -name __init__.py -delete \
    && find tree -type d -name tests -prune -exec rm -r {} +
# Bytecode that does not look at the time of its source: layers have another one after every copy.
RUN python -m compileall -q --invalidation-mode=unchecked-hash -s tree -p /opt/gpuward tree


FROM builder AS project
COPY requirements/build.txt .
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip install --require-hashes --requirement=build.txt
COPY . source
# By name, so that no path of this stage is written down; its version is the only one there is.
# hadolint ignore=DL3013
RUN python -m pip wheel --no-deps --no-build-isolation --no-cache-dir --wheel-dir=dist ./source \
    && python -m pip install --no-deps --no-index --no-cache-dir --no-compile --find-links=dist \
        --target=tree gpuward \
    && rm -r tree/bin
RUN python -m compileall -q --invalidation-mode=unchecked-hash -s tree -p /opt/gpuward tree


FROM gcr.io/distroless/python3-debian13:nonroot@sha256:83aa8d4f74a4d7f7cf2d472054139bef71a927b76c680c0f2e1021d6b1d6d732
COPY --from=dependencies /build/tree /opt/gpuward
COPY --from=project /build/tree /opt/gpuward
# Nothing is imported from the working folder or a home, and nothing is written beside the code.
ENV PYTHONPATH=/opt/gpuward \
    PYTHONSAFEPATH=1 \
    PYTHONNOUSERSITE=1 \
    PYTHONDONTWRITEBYTECODE=1
# As numbers, so that a cluster can tell that it is not root (runAsNonRoot).
USER 65532:65532
EXPOSE 10250 8080 8081
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/python3.13", "-m", "gpuward"]
CMD ["--help"]
# Last, because they change with every build.
ARG VERSION=0.0.0+unreleased
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="gpuward" \
      org.opencontainers.image.description="Admission controller and policy linter for GPUs on Kubernetes" \
      org.opencontainers.image.url="https://github.com/gpuward/gpuward" \
      org.opencontainers.image.source="https://github.com/gpuward/gpuward" \
      org.opencontainers.image.documentation="https://github.com/gpuward/gpuward/blob/main/docs/image.md" \
      org.opencontainers.image.vendor="The gpuward maintainers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="gcr.io/distroless/python3-debian13:nonroot" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
