package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

// fakeSource makes a repository whose scheduler does nothing: what is tested is the image around it, and
// test/image runs the real one.
func fakeSource(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for file, content := range map[string]string{
		"go.mod":                "module zonewise.dev\n\ngo 1.26.0\n",
		"cmd/scheduler/main.go": "package main\n\nfunc main() {}\n",
		"hack/version.sh": "#!/bin/sh\necho '-X k8s.io/component-base/version.gitVersion=v1.2.3+test -X k8s.io/component-base/version.gitCommit=abc" +
			" -X k8s.io/component-base/version.buildDate=2026-08-01T12:00:00Z'\n",
	} {
		file = filepath.Join(dir, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o755))
	}
	return dir
}

var commitTime = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// runImage runs the command and returns what it prints on standard output.
func runImage(t *testing.T, o options) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), o, &out, t.Output())
	return strings.TrimSpace(out.String()), err
}

// TestArchiveIsTheLayout: unpacked elsewhere, the archive is the same layout. Another build replaces all of the first
// one.
func TestArchiveIsTheLayout(t *testing.T) {
	o := options{source: fakeSource(t), output: t.TempDir(), platforms: "linux/amd64,linux/arm64", tag: defaultTag}
	_, err := runImage(t, o)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(o.output, "zonewise-scheduler-linux-arm64.cdx.json"))
	o.platforms = "linux/amd64"
	_, err = runImage(t, o)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(o.output, "zonewise-scheduler-linux-amd64.cdx.json"))
	require.NoFileExists(t, filepath.Join(o.output, "zonewise-scheduler-linux-arm64.cdx.json"), "it is of no platform of this image")

	f, err := os.Open(filepath.Join(o.output, layoutName+".tar"))
	require.NoError(t, err)
	defer f.Close()
	unpacked := t.TempDir()
	untar(t, f, func(h *tar.Header, data []byte) {
		if h.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(filepath.Join(unpacked, h.Name), 0o755))
		} else {
			require.NoError(t, os.WriteFile(filepath.Join(unpacked, h.Name), data, 0o600))
		}
	})
	want, _ := read(t, filepath.Join(o.output, layoutName))
	got, images := read(t, unpacked)
	require.Equal(t, want, got)
	require.Len(t, images, 1)
	blobs, err := os.ReadDir(filepath.Join(unpacked, "blobs", "sha256"))
	require.NoError(t, err)
	require.Len(t, blobs, 4, "index, manifest, config and layer of one image")
}

// TestPushAttachesTheSBOMs: the registry has the index, and lists each platform's document as a referrer of its image,
// by the API of version 1.1 of the distribution specification or, where a registry does not have that, by the tag that
// stands in.
func TestPushAttachesTheSBOMs(t *testing.T) {
	for _, api := range []bool{true, false} {
		server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(api)))
		defer server.Close()
		o := options{source: fakeSource(t), output: t.TempDir(), platforms: "linux/amd64,linux/arm64", push: true}
		o.tag = strings.TrimPrefix(server.URL, "http://") + "/team/scheduler:v1"
		first, err := runImage(t, o)
		require.NoError(t, err)
		ref, err := runImage(t, o)
		require.NoError(t, err)
		require.Equal(t, first, ref)

		parsed, err := name.NewDigest(ref)
		require.NoError(t, err)
		index, err := remote.Index(parsed, remote.WithContext(t.Context()))
		require.NoError(t, err)
		require.NoError(t, validate.Index(index))
		manifest, err := index.IndexManifest()
		require.NoError(t, err)
		var platforms []string
		for _, m := range manifest.Manifests {
			platforms = append(platforms, m.Platform.String())
			referrers, err := remote.Referrers(parsed.Digest(m.Digest.String()), remote.WithContext(t.Context()))
			require.NoError(t, err)
			list, err := referrers.IndexManifest()
			require.NoError(t, err)
			require.Len(t, list.Manifests, 1, "the second push adds nothing")
			require.Equal(t, "application/vnd.cyclonedx+json", list.Manifests[0].ArtifactType)
			artifact, err := remote.Image(parsed.Digest(list.Manifests[0].Digest.String()))
			require.NoError(t, err)
			attached, err := artifact.Manifest()
			require.NoError(t, err)
			require.Equal(t, m.Digest, attached.Subject.Digest)
			require.Len(t, attached.Layers, 1)
			require.Equal(t, sbomType, attached.Layers[0].MediaType)
			layer, err := artifact.LayerByDigest(attached.Layers[0].Digest)
			require.NoError(t, err)
			r, err := layer.Compressed()
			require.NoError(t, err)
			document, err := io.ReadAll(r)
			require.NoError(t, err)
			require.NoError(t, r.Close())
			file, err := os.ReadFile(filepath.Join(o.output, sbomName(*m.Platform)))
			require.NoError(t, err)
			require.Equal(t, string(file), string(document), "what is attached is what is written")
		}
		require.Equal(t, []string{"linux/amd64", "linux/arm64"}, platforms)
	}
}

func TestBadInput(t *testing.T) {
	src := fakeSource(t)
	for want, o := range map[string]options{
		`--platform: "darwin/arm64": want linux/ARCH`: {platforms: "darwin/arm64"},
		"--platform: \"linux/amd64,linux/amd64\"":     {platforms: "linux/amd64,linux/amd64"},
		"--platform: \"\"":                            {platforms: ""},
		"--tag: ":                                     {platforms: "linux/amd64", tag: "UPPER"},
		"hack/version.sh: ":                           {platforms: "linux/amd64", source: t.TempDir()},
		"linux/fax: ":                                 {platforms: "linux/fax"},
	} {
		if o.source == "" {
			o.source = src
		}
		if o.tag == "" {
			o.tag = defaultTag
		}
		o.output = t.TempDir()
		out, err := runImage(t, o)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n")
		require.Empty(t, out)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := run(ctx, options{source: fakeSource(t), output: t.TempDir(), platforms: "linux/amd64", tag: defaultTag}, io.Discard, t.Output())
	require.ErrorIs(t, err, context.Canceled)
}

// read returns the digest of the layout's image and those of the platforms, all of which must be valid.
func read(t *testing.T, dir string) (digest string, images []v1.Image) {
	t.Helper()
	root, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	manifest, err := root.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	require.Equal(t, "dev", manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
	require.Equal(t, defaultTag, manifest.Manifests[0].Annotations["io.containerd.image.name"])
	index, err := root.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	require.NoError(t, validate.Index(index))
	list, err := index.IndexManifest()
	require.NoError(t, err)
	for _, m := range list.Manifests {
		image, err := index.Image(m.Digest)
		require.NoError(t, err)
		images = append(images, image)
	}
	return manifest.Manifests[0].Digest.String(), images
}

// untar reads a tar, and requires that every entry is root's and of the commit's time.
func untar(t *testing.T, r io.Reader, see func(*tar.Header, []byte)) {
	t.Helper()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		require.Equal(t, commitTime, h.ModTime.UTC())
		require.Zero(t, h.Uid)
		require.Zero(t, h.Gid)
		data, err := io.ReadAll(tr)
		require.NoError(t, err)
		see(h, data)
	}
}

func TestComponents(t *testing.T) {
	const sum, sumHex = "h1:q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s=", "ab"
	for _, tc := range []struct {
		name                      string
		module                    debug.Module
		path, version, purl, hash string
	}{
		{
			name: "as required", module: debug.Module{Path: "example.com/a/v2", Version: "v2.1.0", Sum: sum},
			path: "example.com/a/v2", version: "v2.1.0", purl: "pkg:golang/example.com/a/v2@v2.1.0", hash: strings.Repeat(sumHex, sha256.Size),
		},
		{
			name: "a plus sign", module: debug.Module{Path: "example.com/a", Version: "v29.7.2+incompatible"},
			path: "example.com/a", version: "v29.7.2+incompatible", purl: "pkg:golang/example.com/a@v29.7.2%2Bincompatible",
		},
		{
			name: "replaced by a module", module: debug.Module{Path: "example.com/a", Version: "v1.0.0", Sum: "h1:", Replace: &debug.Module{Path: "example.com/b", Version: "v1.5.0", Sum: sum}},
			path: "example.com/b", version: "v1.5.0", purl: "pkg:golang/example.com/b@v1.5.0", hash: strings.Repeat(sumHex, sha256.Size),
		},
		{
			name: "replaced by a directory", module: debug.Module{Path: "example.com/a", Version: "v1.0.0", Replace: &debug.Module{Path: "../a"}},
			path: "example.com/a", version: "v1.0.0", purl: "pkg:golang/example.com/a@v1.0.0",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := component(&tc.module)
			require.Equal(t, tc.path, c.Name)
			require.Equal(t, tc.version, c.Version)
			require.Equal(t, tc.purl, c.PackageURL)
			require.Equal(t, tc.purl, c.BOMRef)
			if tc.hash == "" {
				require.Nil(t, c.Hashes)
			} else {
				require.Equal(t, []cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: tc.hash}}, *c.Hashes)
			}
		})
	}
}

// TestDockerfileMakesTheSameImage compares what the Dockerfile's last stage says with what the command
// makes, so that it does not matter which of the two is used.
func TestDockerfileMakesTheSameImage(t *testing.T) {
	data, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	build, final := stages(t, string(data))

	img, err := newImage(v1.Platform{OS: "linux", Architecture: "amd64"}, nil, source{created: time.Unix(0, 0).UTC()})
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)

	require.Equal(t, []string{"scratch"}, final["FROM"])
	require.Equal(t, []string{config.Config.User}, final["USER"])
	require.Equal(t, config.Config.Env, final["ENV"])
	require.Equal(t, []string{config.Config.WorkingDir}, final["WORKDIR"])
	require.Equal(t, []string{`["` + strings.Join(config.Config.Entrypoint, `", "`) + `"]`}, final["ENTRYPOINT"])
	require.Equal(t, []string{"--from=build /out/ /"}, final["COPY"])
	require.Len(t, final["EXPOSE"], 1)
	require.Contains(t, config.Config.ExposedPorts, final["EXPOSE"][0])
	require.NotContains(t, final, "CMD")

	labels := regexp.MustCompile(`(\S+)="([^"]*)"`).FindAllStringSubmatch(final["LABEL"][0], -1)
	require.Len(t, labels, 4)
	for _, l := range labels {
		require.Equal(t, config.Config.Labels[l[1]], l[2], l[1])
	}

	run := build["RUN"][len(build["RUN"])-1]
	require.Contains(t, run, "CGO_ENABLED=0")
	require.Contains(t, run, strings.Replace("go "+strings.Join(buildArgs("$ldflags"), " "), "-s -w -buildid= $ldflags", `"-s -w -buildid= $ldflags"`, 1))
	require.Contains(t, run, "-o /out/"+program+" ./cmd/scheduler")
}

// stages returns the instructions of the two stages of a Dockerfile, with their arguments in order. It
// knows as much of the syntax as the file uses.
func stages(t *testing.T, dockerfile string) (build, final map[string][]string) {
	t.Helper()
	var all []map[string][]string
	dockerfile = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(dockerfile, "")
	dockerfile = regexp.MustCompile(`\\\n\s*`).ReplaceAllString(dockerfile, "")
	for line := range strings.Lines(dockerfile) {
		instruction, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if instruction == "FROM" {
			all = append(all, map[string][]string{})
		}
		if instruction != "" && len(all) > 0 {
			last := all[len(all)-1]
			last[instruction] = append(last[instruction], args)
		}
	}
	require.Len(t, all, 2)
	return all[0], all[1]
}
