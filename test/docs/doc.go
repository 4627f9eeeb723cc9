// Package docs tests what the documentation says about the repository: that the tests, benchmarks, files and targets of
// make that it names exist, that its links lead somewhere, and what a target leaves out.
package docs
