// Package image tests the scheduler's OCI image. It builds the image with hack/image, unpacks its layers, and runs
// their program as the image's user and, where the test may, with the unpacked layers as the root of the file system.
// It compares the SBOM with what the binary says.
//
// One test runs the image under runc, against a real API server.
package image
