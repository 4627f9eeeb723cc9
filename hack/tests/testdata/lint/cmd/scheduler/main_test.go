package main

import (
	"testing"

	"zonewise.dev/test/parity"
)

// A test may use what tests share.
func TestMain(*testing.M) { _ = parity.Name }
