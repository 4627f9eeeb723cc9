package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/chaos"
	"zonewise.dev/test/chaos/history"
)

// TestJudgeAgain: a record that was saved is judged again, and the error, from which the exit code follows, says how it
// ended.
func TestJudgeAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record.json.gz")
	record := &history.Record{Seed: 7, Remains: map[string]float64{}}
	require.NoError(t, record.Save(file))
	require.ErrorContains(t, run(t.Context(), chaos.Options{}, "", file), "has not kept", "the record does not say that nothing is left")

	require.ErrorContains(t, run(t.Context(), chaos.Options{}, "", filepath.Join(t.TempDir(), "none")), "no such file")
}
