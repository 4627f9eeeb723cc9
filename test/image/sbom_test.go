package image

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/internal/oci"
)

// bom is a CycloneDX document (https://cyclonedx.org/docs/1.6/json), as far as the tests look at it.
type bom struct {
	BOMFormat    string `json:"bomFormat"`
	SpecVersion  string `json:"specVersion"`
	SerialNumber string `json:"serialNumber"`
	Metadata     struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	} `json:"metadata"`
	Components   []component `json:"components"`
	Dependencies []struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	} `json:"dependencies"`
}

type component struct {
	Ref     string `json:"bom-ref"`
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
	Hashes  []struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	} `json:"hashes"`
	Properties []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"properties"`
}

// TestSBOM compares the list of parts with what the binary in the image says that it was linked from.
func TestSBOM(t *testing.T) {
	b := image(t)
	serials := map[string]bool{}
	for _, image := range oci.Read(t, b.layout).Images {
		binary := unpack(t, image.Config.Architecture).binary()
		data, err := os.ReadFile(binary)
		require.NoError(t, err)
		info, err := buildinfo.ReadFile(binary)
		require.NoError(t, err)

		document, err := os.ReadFile(filepath.Join(b.dir, "zonewise-scheduler-linux-"+image.Config.Architecture+".cdx.json"))
		require.NoError(t, err)
		var list bom
		require.NoError(t, json.Unmarshal(document, &list))
		require.Equal(t, "CycloneDX", list.BOMFormat)
		require.Equal(t, "1.6", list.SpecVersion)
		require.Regexp(t, `^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, list.SerialNumber)
		serials[list.SerialNumber] = true
		require.Equal(t, b.version, list.Metadata.Component.Version)
		require.Equal(t, "SHA-256", list.Metadata.Component.Hashes[0].Algorithm)
		require.Equal(t, oci.SHA256(data), list.Metadata.Component.Hashes[0].Content, "the list is of this very binary")
		require.Equal(t, image.Config.Config.Labels["org.opencontainers.image.created"], list.Metadata.Timestamp)
		properties := map[string]string{}
		for _, p := range list.Metadata.Component.Properties {
			properties[p.Name] = p.Value
		}
		require.Equal(t, image.Config.Architecture, properties["zonewise:build:GOARCH"])

		want := []string{"std@v" + strings.TrimPrefix(info.GoVersion, "go")}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			want = append(want, m.Path+"@"+m.Version)
		}
		var got, refs []string
		for _, c := range list.Components {
			require.Equal(t, "library", c.Type)
			require.Equal(t, "pkg:golang/"+c.Name+"@"+strings.ReplaceAll(c.Version, "+", "%2B"), c.PURL)
			got, refs = append(got, c.Name+"@"+c.Version), append(refs, c.Ref)
		}
		require.Equal(t, want, got)
		require.Contains(t, strings.Join(got, " "), "k8s.io/kubernetes@v1.")
		require.Len(t, list.Dependencies, 1)
		require.Equal(t, list.Metadata.Component.Ref, list.Dependencies[0].Ref)
		require.Equal(t, refs, list.Dependencies[0].DependsOn)
	}
	require.Len(t, serials, len(platforms), "one serial number for each binary")
}
