// The pinned govulncheck, which looks for known vulnerabilities in "make verify".
module zonewise.dev/hack/tools/govulncheck

go 1.26.0

tool golang.org/x/vuln/cmd/govulncheck

require (
	github.com/google/go-cmp v0.7.0 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/telemetry v0.0.0-20261009151841-97e8ea77aa2a // indirect
	golang.org/x/tools v0.52.0 // indirect
	golang.org/x/vuln v1.7.0 // indirect
)

// Versions that a dependency asks for and that the API server is not made of: its packages are not compiled twice.
exclude (
	golang.org/x/sync v0.23.0
	golang.org/x/sync v0.24.0
)
