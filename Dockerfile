# The container image of gpuward. docs/image.md describes its contents and how to verify it.

# Both the builder and the final image have Python 3.13 on Debian 13, because wheels and bytecode fit
# one minor version of Python and one C library. The interpreter has different paths in the two
# images. So the final image gets a plain folder for PYTHONPATH: a virtual environment would refer to
# the interpreter of the builder.
FROM python:3.13-slim-trixie@sha256:3dd7cc108ec1493442514f5c2a871af6af0ec31d768ff6e378a93340c3b3db5f AS builder
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ONLY_BINARY=:all: \
    PIP_ROOT_USER_ACTION=ignore


# The dependencies have their own layer, because they change less often than gpuward does.
FROM builder AS dependencies
COPY requirements/image.txt .
# The cache is a mount, so it is in no layer.
# hadolint ignore=DL3042
RUN --mount=type=cache,target=/pip-cache \
    python -m pip install --cache-dir=/pip-cache --require-hashes --no-compile --target=tree --requirement=image.txt
# Remove what gpuward does not use. Of the Kubernetes client it uses only the configuration and the
# connection (cluster/api/connection.py): the client imports its models and API classes lazily, by name,
# and gpuward uses none of them. No dependency is run as a command, tested, measured, compiled or
# checked for types here.
RUN rm -r tree/bin tree/kubernetes/aio tree/kubernetes/client/api tree/kubernetes/client/apis \
    && find tree/kubernetes/client/models -name '*.py' ! -name __init__.py -delete \
    && find tree -type d \( -name tests -o -name benchmarks \) -prune -exec rm -r {} + \
    && find tree -type f -regex '.*\.\(pyx\|pxd\|pyi\|h\|c\)' -delete
# Compile bytecode that does not depend on the modification time of its source, because every copy to
# a layer changes that time.
RUN python -m compileall -q --invalidation-mode=unchecked-hash -s tree -p /opt/gpuward tree


FROM builder AS project
COPY requirements/build.txt .
# The cache is a mount, so it is in no layer.
# hadolint ignore=DL3042
RUN --mount=type=cache,target=/pip-cache \
    python -m pip install --cache-dir=/pip-cache --require-hashes --requirement=build.txt
COPY . source
# Install by name, so that the metadata contains no path of this stage. There is only one version.
# hadolint ignore=DL3013
RUN python -m pip wheel --no-deps --no-build-isolation --no-cache-dir --wheel-dir=dist ./source \
    && python -m pip install --no-deps --no-index --no-cache-dir --no-compile --find-links=dist \
        --target=tree gpuward \
    && rm -r tree/bin
RUN python -m compileall -q --invalidation-mode=unchecked-hash -s tree -p /opt/gpuward tree


FROM gcr.io/distroless/python3-debian13:nonroot@sha256:83aa8d4f74a4d7f7cf2d472054139bef71a927b76c680c0f2e1021d6b1d6d732
COPY --from=dependencies /build/tree /opt/gpuward
COPY --from=project /build/tree /opt/gpuward
# Python imports nothing from the working folder or a home folder, and writes no bytecode files.
ENV PYTHONPATH=/opt/gpuward \
    PYTHONSAFEPATH=1 \
    PYTHONNOUSERSITE=1 \
    PYTHONDONTWRITEBYTECODE=1
# A numeric user, so that the kubelet can verify runAsNonRoot.
USER 65532:65532
EXPOSE 10250 8080 8081
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/python3.13", "-m", "gpuward"]
CMD ["--help"]
# The labels are last, because they change with every build.
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
