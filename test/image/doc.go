// Package image tests the scheduler's OCI image: it builds it with hack/image, unpacks its layers and runs
// what is in them, as a container runtime would: as the image's user, and, where the test may, with the
// unpacked layers as the root of the file system.
//
// The image is read with the standard library alone, so that a mistake of the library that built it does
// not hide itself.
package image
