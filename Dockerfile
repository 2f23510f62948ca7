# gpumon in a container; docs/install.md says what each option of docker run is for.
#   docker build -t gpumon .
#   docker run --rm -it --pid=host --uts=host --gpus all -e TERM -e COLORTERM gpumon
FROM python:3.13-slim AS build
# Without the extras: --build-arg EXTRAS=
ARG EXTRAS=exporter,alerts,web
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY gpumon gpumon
COPY packages packages
COPY themes themes
# Its requirements have versions: pyproject.toml.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --prefix=/installed ".[$EXTRAS]"

FROM python:3.13-slim
LABEL org.opencontainers.image.title="gpumon" \
      org.opencontainers.image.description="A terminal dashboard of GPUs, their processes and users" \
      org.opencontainers.image.licenses="MIT"
# NVIDIA's container runtime puts NVML in by these: no CUDA is needed.
ENV LANG=C.UTF-8 \
    NVIDIA_DRIVER_CAPABILITIES=utility \
    NVIDIA_VISIBLE_DEVICES=all
COPY --from=build /installed /usr/local
# With --pid=host this number is compared with those of the host: a low one may be somebody's, whose
# processes this user could then end.
RUN groupadd --gid 61001 gpumon && useradd --create-home --uid 61001 --gid 61001 gpumon
# By its number, so that Kubernetes can see that it is not root.
USER 61001
WORKDIR /home/gpumon
ENTRYPOINT ["gpumon"]
