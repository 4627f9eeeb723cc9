// Package docs tests what the documentation says of the repository: that each of its commands is run by a test, that the tests,
// benchmarks and files which it names exist, and that its links lead somewhere.
package docs
