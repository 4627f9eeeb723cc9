// Package habits has one breach for each of the linters that the house relies on.
package habits

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"k8s.io/klog/v2"
)

// Wrapped compares an error that may be wrapped.
func Wrapped(err error) bool {
	return err == io.EOF // want errorlint
}

// Hidden returns nil although there is an error.
func Hidden(s string) error {
	if _, err := strconv.Atoi(s); err != nil {
		return nil // want nilerr
	}
	return nil
}

// Dropped does not look at the error.
func Dropped(s io.Seeker) {
	s.Seek(0, io.SeekStart) // want errcheck
}

// Loop could range over an integer.
func Loop(n int) int {
	sum := 0
	for i := 0; i < n; i++ { // want modernize
		sum += i
	}
	return sum
}

func Undocumented() {} // want revive

// Unstructured logs with a format, and past the context's logger.
func Unstructured(ctx context.Context, pod string) {
	klog.Infof("pod %s", pod)                      // want logcheck
	klog.FromContext(ctx).Info("Scheduled", "pod") // want logcheck
	klog.FromContext(ctx).V(4).Info("Scheduled", "pod", pod)
}

// Unexplained switches linters off without saying which or why.
func Unexplained(s io.Seeker) {
	// want-below nolintlint
	s.Seek(0, io.SeekStart) //nolint
	// want-below nolintlint
	s.Seek(0, io.SeekStart) //nolint:errcheck
	s.Seek(0, io.SeekStart) //nolint:errcheck // a seek to the start of a buffer cannot fail
}

// Printed gives Errorf the wrong type.
func Printed() error {
	if errors.Is(nil, io.EOF) {
		return fmt.Errorf("no number: %d", "x") // want govet
	}
	return nil
}

func unused() {} // want unused
