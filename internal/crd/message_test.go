package crd_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"zonewise.dev/internal/crd"
)

func TestShortened(t *testing.T) {
	whole := strings.Repeat("x", crd.MaxMessage)
	require.Equal(t, whole, crd.Shortened(whole))
	require.Equal(t, whole[3:]+"...", crd.Shortened(whole+"y"))
	for _, before := range []string{"", "x", "xx"} {
		short := crd.Shortened(before + strings.Repeat("€", crd.MaxMessage))
		require.LessOrEqual(t, len(short), crd.MaxMessage)
		require.True(t, utf8.ValidString(short))
		require.True(t, strings.HasSuffix(short, "€..."), short[len(short)-10:])
	}
}
