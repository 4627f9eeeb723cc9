# The scheduler's image, for machines with a container engine and without Go:
#
#   docker build -t registry.example.com/zonewise-scheduler:dev .
#
# "make image" builds the same image without an engine; a test compares the two (hack/image).
ARG GO_VERSION=1.26
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS=linux
ARG TARGETARCH=amd64
# The version of the checkout's commit, or that of a release.
ARG VERSION=git
RUN ldflags=$(hack/version.sh ldflags) && \
    CGO_ENABLED=0 GOWORK=off GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w -buildid= $ldflags" \
    -o /out/usr/local/bin/kube-scheduler ./cmd/scheduler

# Only the binary: it is static, the API server's certificate authority comes with the kubeconfig
# or the ServiceAccount, and no name outside the cluster is ever looked up.
FROM scratch
COPY --from=build /out/ /
# So that the command "kube-scheduler" of kubeadm's static pod is found.
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 65532:65532
WORKDIR /
EXPOSE 10259/tcp
LABEL org.opencontainers.image.title="zonewise-scheduler" \
      org.opencontainers.image.description="kube-scheduler with the plugins ZoneSpread, ReserveCache and PermitGate" \
      org.opencontainers.image.url="https://zonewise.dev" \
      org.opencontainers.image.licenses="Apache-2.0"
ENTRYPOINT ["/usr/local/bin/kube-scheduler"]
