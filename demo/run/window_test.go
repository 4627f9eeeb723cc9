package run

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/demo/board"
)

func get(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, string(body))
	return string(body)
}

func TestTheWindowIsOpenBeforeThereIsACluster(t *testing.T) {
	w, err := openWindow(t.Context(), 0)
	require.NoError(t, err)
	url := w.server.URL()
	body := get(t, url)
	require.Contains(t, body, clusterName)
	require.Contains(t, body, "No nodes.")
	w.enter("start the control plane")
	require.Contains(t, get(t, url), "The demo: start the control plane")

	w.close()
	w.close() // again does no harm
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		require.NoError(t, response.Body.Close())
	}
	require.Error(t, err, "nothing is left")
}

func TestAPortThatIsTakenIsSaidBeforeAnythingStarts(t *testing.T) {
	var config net.ListenConfig
	taken, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	at := taken.Addr().(*net.TCPAddr)
	_, err = openWindow(t.Context(), at.Port)
	require.EqualError(t, err, "--board-port: "+at.String()+": something else listens there: choose another, or 0 for a free one")
}

func TestTheReportHasBothVerdicts(t *testing.T) {
	b := &board.Board{
		Kubernetes: "v1.2.3",
		Checks:     []board.Check{{Name: "every replica exists", Scope: "9 replicas"}},
		WhileLost:  []board.Check{{Name: "every replica exists", Scope: "8 replicas", Violations: []string{"service web: 8 pods, 9 replicas"}}},
		Phases:     []board.Timing{{Name: "drain", Duration: 2 * time.Second, Bound: 10, PerSecond: 5}},
		Throughput: board.Throughput{Median: time.Second, P99: 2 * time.Second},
	}
	r := report(b)
	require.Len(t, r.Checks, 2)
	require.True(t, r.Checks[0].OK())
	require.False(t, r.Checks[1].OK())
	require.Equal(t, "every replica exists, while the zone was lost", r.Checks[1].Name)
	require.Equal(t, "2.0 s, 10 pods bound, 5 a second", r.Facts[0].Value)
	require.Equal(t, "median 1.0 s, 99% within 2.0 s", r.Facts[1].Value)
	require.Len(t, b.Broken(), 1, "what was broken while the zone was lost is broken")
	require.Equal(t, "every replica exists, while the zone was lost", b.Broken()[0].Name)
}
