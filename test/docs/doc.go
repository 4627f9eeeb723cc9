// Package docs tests what the documentation says about the repository: that a test runs each of its commands, that the tests,
// benchmarks and files that it names exist, and that its links lead somewhere.
package docs
