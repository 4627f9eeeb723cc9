// Package image tests the scheduler's OCI image: it builds it with hack/image, unpacks its layers, runs what is in them
// as the image's user and, where the test may, with the unpacked layers as the root of the file system, and compares
// the list of its parts with what the binary says.
//
// One test runs the image under runc, against a real API server.
package image
