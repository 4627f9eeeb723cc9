package main

import (
	"testing"

	"zonewise.dev/test/parity"
)

// A test may use what tests share.
func TestName(t *testing.T) {
	if parity.Name == "" {
		t.Fail()
	}
}
