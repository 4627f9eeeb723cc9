package board

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// story is a run with every kind of line on its board.
func story() *world {
	w := sound()
	w.Nodes[0].Status.Allocatable[gpuResource] = resource.MustParse("10")
	for i := range 12 {
		name := fmt.Sprintf("app-%d", i)
		w.deployment(name, name, 1).replicas([]string{"a2", "b2"}[i%2])
		// They ask for nothing, to stay within what the nodes have.
		w.last(func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil })
	}
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	w.Phases = []Phase{{"start", at(0), at(4)}, {"replay the workload", at(4), at(14)}, {"drain c", at(14), at(20)}}
	for i, bound := range []float64{4.5, 4.6, 5.1, 8, 14, 15.5, -1} {
		b := Binding{UID: types.UID(fmt.Sprint(i)), Created: at(4 + 0.1*float64(i))}
		if bound > 0 {
			b.Bound = at(bound)
		}
		w.Bindings = append(w.Bindings, b)
	}
	return w.honest()
}

func TestGolden(t *testing.T) {
	broken := story()
	broken.gang("half", 3, "true", "a1", "b1", "").honest().metrics(func(m *Metrics) { m.Drift, m.Assumed = 1, math.NaN() })
	for name, render := range map[string]func(*bytes.Buffer) error{
		"sound.txt":  func(w *bytes.Buffer) error { return story().build().Text(w, Style{}) },
		"sound.json": func(w *bytes.Buffer) error { return story().build().JSON(w) },
		"broken.txt": func(w *bytes.Buffer) error { return broken.build().Text(w, Style{}) },
		"color.txt":  func(w *bytes.Buffer) error { return broken.build().Text(w, Style{Color: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			require.NoError(t, render(&got))
			file := filepath.Join("testdata", name)
			if *update {
				require.NoError(t, os.WriteFile(file, got.Bytes(), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(string(want), got.String()))
		})
	}
}

func TestTextStaysWithin80Columns(t *testing.T) {
	var text bytes.Buffer
	require.NoError(t, story().build().Text(&text, Style{}))
	for line := range bytes.Lines(text.Bytes()) {
		require.LessOrEqual(t, len([]rune(string(bytes.TrimRight(line, "\n")))), 80, "%s", line)
	}
}

// What is unknown is null in JSON, never a number.
func TestJSONOfUnknownMetrics(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, newWorld().metrics(func(m *Metrics) { m.Drift = math.NaN() }).build().JSON(&out))
	var got struct {
		Ledger map[string]*float64 `json:"ledger"`
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	require.Contains(t, got.Ledger, "drift")
	require.Nil(t, got.Ledger["drift"])
	require.NotNil(t, got.Ledger["pods"])
}

func TestZoneStates(t *testing.T) {
	b := newWorld().
		node("a1", "a").
		node("b1", "b").node("b2", "b", cordoned).
		node("c1", "c", cordoned).pod("ns", nil, requests("1"), "c1").
		node("d1", "d", cordoned).
		build()
	var got []string
	for _, z := range b.Zones {
		got = append(got, z.Name+" "+z.State)
	}
	require.Equal(t, []string{"a serving", "b mixed", "c cordoned", "d drained"}, got)
}

func TestPhaseCountsWhatWasBoundInIt(t *testing.T) {
	b := story().build()
	require.Equal(t, []Timing{
		{Name: "start", Duration: 4 * time.Second},
		// The last was bound four seconds in.
		{Name: "replay the workload", Duration: 10 * time.Second, Bound: 4, PerSecond: 1, Peak: 2},
		{Name: "drain c", Duration: 6 * time.Second, Bound: 2, PerSecond: 2 / 1.5, Peak: 1},
	}, b.Phases)
	require.Equal(t, 6, b.Throughput.Bound)
	require.Equal(t, 900*time.Millisecond, b.Throughput.Median)
	require.Equal(t, 11*time.Second, b.Throughput.P99)
}

func TestQuantileIsTheNearestRank(t *testing.T) {
	values := []time.Duration{1, 2, 3, 4}
	for q, want := range map[float64]time.Duration{0: 1, 0.25: 1, 0.5: 2, 0.51: 3, 0.99: 4, 1: 4} {
		require.Equal(t, want, quantile(values, q), "%v", q)
	}
	require.Zero(t, quantile(nil, 0.5))
}

func TestQuoteTakesTwoLinesAtMost(t *testing.T) {
	for _, tc := range []struct{ give, want string }{
		{"", "    \"\"\n"},
		{"short", "    \"short\"\n"},
		{strings.Repeat("word ", 20), "    \"" + strings.Repeat("word ", 13) + "word\n     " + strings.Repeat("word ", 5) + "word\"\n"},
		{strings.Repeat("word ", 90), "    \"" + strings.Repeat("word ", 13) + "word\n     " + strings.Repeat("word ", 13) + "word ...\n"},
		{strings.Repeat("x", 200), "    \"" + strings.Repeat("x", 72) + "...\n"},
	} {
		p := &page{}
		p.quote(tc.give)
		require.Equal(t, tc.want, p.String())
	}
}
