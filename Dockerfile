# A small image that runs the command line: non-root, compiled ahead, no network at run time.
#   docker build -t reconform . && docker run --rm -v "$PWD:/data" reconform detect normal.csv new.csv
FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -rf /wheels \
 && useradd --create-home --uid 10001 reconform
ENV NUMBA_CACHE_DIR=/opt/reconform-cache \
    PYTHONUNBUFFERED=1
RUN mkdir -p "$NUMBA_CACHE_DIR" && reconform warm && chmod -R a+rX "$NUMBA_CACHE_DIR"
USER reconform
WORKDIR /data
ENTRYPOINT ["reconform"]
CMD ["--help"]
