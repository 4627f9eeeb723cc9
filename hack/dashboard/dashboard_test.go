package dashboard

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/stretchr/testify/require"
)

// grafanaDashboard is the schema of a dashboard's file, which every version of Grafana imports.
type grafanaDashboard = dashboard.Dashboard //nolint:staticcheck // its successor is for dashboards that are kept as objects of Grafana's own API

// TestDashboardIsGrafanas: the file has the fields of a dashboard, its panels those of their kinds, and no others.
func TestDashboardIsGrafanas(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	data, err := os.ReadFile(filepath.Join("..", "..", "manifests", "monitoring", "dashboard.json"))
	require.NoError(t, err)
	var board grafanaDashboard
	require.Empty(t, mistakes(board.UnmarshalJSONStrict(data)))
	require.Empty(t, mistakes(board.Validate()))
	require.Greater(t, len(board.Panels), 10)

	typo := strings.Replace(string(data), `"gridPos"`, `"gridPosition"`, 1)
	require.NotEqual(t, string(data), typo)
	require.NotEmpty(t, mistakes(new(grafanaDashboard).UnmarshalJSONStrict([]byte(typo))), "a field that Grafana does not know")
}

// mistakes lists what is wrong: the SDK returns an error without content, and not nil, when nothing is.
func mistakes(err error) []string {
	var found cog.BuildErrors
	if !errors.As(err, &found) {
		if err != nil {
			return []string{err.Error()}
		}
		return nil
	}
	var out []string
	for _, mistake := range found {
		out = append(out, mistake.Error())
	}
	return out
}
