package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// newKey writes a private key, in the form that "cosign generate-key-pair" writes, and returns its file and what checks
// with it.
func newKey(t *testing.T, password string) (string, signature.Verifier) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	block := &pem.Block{Type: pkcs8Key, Bytes: der}
	if password != "" {
		block.Type = encryptedKey
		block.Bytes, err = encrypted.Encrypt(der, []byte(password))
		require.NoError(t, err)
	}
	file := filepath.Join(t.TempDir(), "cosign.key")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	verifier, err := signature.LoadVerifier(key.Public(), crypto.SHA256)
	require.NoError(t, err)
	return file, verifier
}

// newBuild is a build that has been prepared, of this checkout.
func newBuild(t *testing.T, repository string) *build {
	t.Helper()
	source, err := filepath.Abs("../..")
	require.NoError(t, err)
	return &build{
		version: "v0.1.0", repository: repository, source: source, output: t.TempDir(), downloads: "https://example.com/releases",
		platforms: "linux/amd64,linux/arm64", cli: []string{"linux/amd64", "windows/amd64"}, progress: io.Discard,
		commit: strings.Repeat("a", 40), when: time.Unix(1_790_000_000, 0).UTC(),
	}
}

// newIndex makes an image for two platforms, and a directory with their SBOMs.
func newIndex(t *testing.T) (v1.ImageIndex, string) {
	t.Helper()
	dir := t.TempDir()
	index := v1.ImageIndex(empty.Index)
	for _, arch := range []string{"amd64", "arm64"} {
		image, err := random.Image(64, 1)
		require.NoError(t, err)
		platform := v1.Platform{OS: "linux", Architecture: arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
		require.NoError(t, os.WriteFile(filepath.Join(dir, "zonewise-scheduler-linux-"+arch+".cdx.json"), []byte(`{"of":"`+arch+`"}`), 0o600))
	}
	return index, dir
}

// startRegistry returns where a registry on the loopback interface listens.
func startRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// onlyLayer returns the one layer of an image, with its annotations.
func onlyLayer(t *testing.T, reference name.Reference) ([]byte, map[string]string) {
	t.Helper()
	image, err := remote.Image(reference, remote.WithContext(t.Context()))
	require.NoError(t, err)
	manifest, err := image.Manifest()
	require.NoError(t, err)
	require.Len(t, manifest.Layers, 1)
	layer, err := image.LayerByDigest(manifest.Layers[0].Digest)
	require.NoError(t, err)
	r, err := layer.Compressed()
	require.NoError(t, err)
	defer r.Close()
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	return data, manifest.Layers[0].Annotations
}

// requireSigned requires what "cosign verify --key" does: a signature at the tag of the digest, by the key, of a claim
// about the digest.
func requireSigned(t *testing.T, verifier signature.Verifier, reference name.Digest) {
	t.Helper()
	hash, err := v1.NewHash(reference.DigestStr())
	require.NoError(t, err)
	claim, annotations := onlyLayer(t, reference.Tag(tagOf(hash, "sig")))
	raw, err := base64.StdEncoding.DecodeString(annotations[signatureKey])
	require.NoError(t, err)
	require.NoError(t, verifier.VerifySignature(bytes.NewReader(raw), bytes.NewReader(claim)))
	var about payload.Cosign
	require.NoError(t, json.Unmarshal(claim, &about))
	require.Equal(t, reference.String(), about.Image.String())
	require.Error(t, verifier.VerifySignature(bytes.NewReader(raw), strings.NewReader(string(claim)+" ")), "of nothing else")
}

func TestReleaseIsSignedAndPushed(t *testing.T) {
	t.Setenv("COSIGN_PASSWORD", "secret")
	key, verifier := newKey(t, "secret")
	b := newBuild(t, startRegistry(t)+"/team")
	var err error
	b.signer, err = loadSigner(key)
	require.NoError(t, err)
	index, sboms := newIndex(t)
	image, err := b.describeImage(index, sboms)
	require.NoError(t, err)
	require.NoError(t, b.charts(image.digest))
	require.NoError(t, b.installs(image.digest))
	require.NoError(t, b.checksums())
	require.NoError(t, push(t.Context(), b.output, b.repository, io.Discard))
	require.NoError(t, push(t.Context(), b.output, b.repository, io.Discard), "again")

	// The image, of all platforms.
	tag, err := name.NewTag(b.repository + "/zonewise-scheduler:v0.1.0")
	require.NoError(t, err)
	pushed, err := remote.Index(tag, remote.WithContext(t.Context()))
	require.NoError(t, err)
	digest, err := pushed.Digest()
	require.NoError(t, err)
	require.Equal(t, image.digest, digest)
	requireSigned(t, verifier, tag.Digest(digest.String()))
	manifest, err := pushed.IndexManifest()
	require.NoError(t, err)
	for _, m := range manifest.Manifests {
		requireSigned(t, verifier, tag.Digest(m.Digest.String()))
		require.Equal(t, `{"of":"`+m.Platform.Architecture+`"}`, string(referrer(t, tag.Digest(m.Digest.String()), string(sbomType))))
	}

	// The provenance, as a referrer and in an envelope that is signed.
	statement := referrer(t, tag.Digest(digest.String()), inToto)
	var said struct {
		Subject []struct {
			Digest map[string]string
		}
		PredicateType string
		Predicate     struct {
			BuildDefinition struct{ ResolvedDependencies []resource }
		}
	}
	require.NoError(t, json.Unmarshal(statement, &said))
	require.Equal(t, "https://slsa.dev/provenance/v1", said.PredicateType)
	require.Len(t, said.Subject, 3)
	require.Equal(t, digest.Hex, said.Subject[0].Digest["sha256"])
	require.Equal(t, b.commit, said.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"])
	envelope, annotations := onlyLayer(t, tag.Tag(tagOf(digest, "att")))
	require.Equal(t, said.PredicateType, annotations[predicateTypeKey])
	require.NoError(t, dsse.WrapVerifier(verifier).VerifySignature(bytes.NewReader(envelope), nil))
	var inside struct{ Payload []byte }
	require.NoError(t, json.Unmarshal(envelope, &inside))
	require.Equal(t, string(statement), string(inside.Payload))
	_, stranger := newKey(t, "")
	require.Error(t, dsse.WrapVerifier(stranger).VerifySignature(bytes.NewReader(envelope), nil), "another key")

	// The charts.
	for _, chart := range []string{"zonewise", "zonewise-crds"} {
		tag, err := name.NewTag(b.repository + "/charts/" + chart + ":0.1.0")
		require.NoError(t, err)
		head, err := remote.Head(tag, remote.WithContext(t.Context()))
		require.NoError(t, err)
		requireSigned(t, verifier, tag.Digest(head.Digest.String()))
	}
	testHelmTakesTheCharts(t, b, image.digest)

	// The files.
	list, err := os.ReadFile(filepath.Join(b.output, sums))
	require.NoError(t, err)
	signed, err := os.ReadFile(filepath.Join(b.output, sums+".sig"))
	require.NoError(t, err)
	raw, err := base64.StdEncoding.DecodeString(string(signed))
	require.NoError(t, err)
	require.NoError(t, verifier.VerifySignature(bytes.NewReader(raw), bytes.NewReader(list)))
	listed := strings.Fields(string(list))
	require.Greater(t, len(listed), 16)
	for i := 0; i < len(listed); i += 2 {
		data, err := os.ReadFile(filepath.Join(b.output, listed[i+1]))
		require.NoError(t, err)
		require.Equal(t, listed[i], fmt.Sprintf("%x", sha256.Sum256(data)))
	}
}

// referrer returns the one document of a type that refers to a digest.
func referrer(t *testing.T, subject name.Digest, artifactType string) []byte {
	t.Helper()
	index, err := remote.Referrers(subject, remote.WithContext(t.Context()))
	require.NoError(t, err)
	list, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, list.Manifests, 1)
	require.Equal(t, artifactType, list.Manifests[0].ArtifactType)
	data, _ := onlyLayer(t, subject.Digest(list.Manifests[0].Digest.String()))
	return data
}

// testHelmTakesTheCharts has the pinned helm pull both charts from the registry and render them.
func testHelmTakesTheCharts(t *testing.T, b *build, image v1.Hash) {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), "bash", "-c", ". ../lib.sh && need_tool helm >&2 && tool helm").Output()
	require.NoError(t, err)
	template := func(chart string) string {
		cmd := exec.CommandContext(t.Context(), strings.TrimSpace(string(path)), "template", "zonewise", "oci://"+b.repository+"/charts/"+chart,
			"--version", "0.1.0", "--plain-http", "--kube-version", "1.37.2", "--namespace", "kube-system")
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, stderr.String())
		return string(out)
	}
	require.Contains(t, template("zonewise"), "image: \""+b.repository+"/zonewise-scheduler@"+image.String()+"\"")
	rendered := template("zonewise-crds")
	files, err := filepath.Glob(filepath.Join(b.source, "manifests", "crds", "*_*.yaml"))
	require.NoError(t, err)
	require.Equal(t, len(files), strings.Count(rendered, "\nkind: CustomResourceDefinition\n"))
	require.Equal(t, len(files), strings.Count(rendered, "helm.sh/resource-policy: keep"), "none goes with the chart")
}

// TestInstallsNameTheImage: what is applied for each way of installing names the image of the release, and no
// placeholder.
func TestInstallsNameTheImage(t *testing.T) {
	b := newBuild(t, "registry.example.com/team")
	digest := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("1", 64)}
	require.NoError(t, b.installs(digest))
	files, err := filesOf(b.output)
	require.NoError(t, err)
	running := 0
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(b.output, file))
		require.NoError(t, err)
		require.NotContains(t, string(data), placeholder+":", file)
		if strings.Contains(string(data), "kind: Deployment") {
			require.Contains(t, string(data), "image: registry.example.com/team/zonewise-scheduler@"+digest.String(), file)
			running++
		}
	}
	require.GreaterOrEqual(t, running, 4, "two ways, with and without a component: %s", files)
	require.Contains(t, files, "install-crds.yaml")
}

func TestKrewManifest(t *testing.T) {
	b := newBuild(t, "registry.example.com/team")
	archives := map[string]archived{}
	for goos, program := range map[string]string{"linux": "zonewise", "windows": "zonewise.exe"} {
		a, err := b.packProgram(goos, "amd64", map[string][]byte{program: []byte(goos), "LICENSE": []byte("text")})
		require.NoError(t, err)
		again, err := b.packProgram(goos, "amd64", map[string][]byte{program: []byte(goos), "LICENSE": []byte("text")})
		require.NoError(t, err)
		require.Equal(t, a, again, "the same files give the same archive")
		archives[goos+"/amd64"] = a
	}
	data, err := b.krew(archives)
	require.NoError(t, err)
	var plugin struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			Version, ShortDescription string
			Platforms                 []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, SHA256, Bin string
				Files            []struct{ From, To string }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(data, &plugin))
	require.Equal(t, "Plugin", plugin.Kind)
	require.Equal(t, "zonewise", plugin.Metadata.Name)
	require.Equal(t, "v0.1.0", plugin.Spec.Version)
	require.LessOrEqual(t, len(plugin.Spec.ShortDescription), 50, "krew's limit")
	require.Len(t, plugin.Spec.Platforms, 2)
	for _, p := range plugin.Spec.Platforms {
		file := filepath.Base(p.URI)
		require.Equal(t, "https://example.com/releases/v0.1.0/"+file, p.URI)
		archive, err := os.ReadFile(filepath.Join(b.output, file))
		require.NoError(t, err)
		require.Equal(t, p.SHA256, fmt.Sprintf("%x", sha256.Sum256(archive)))
		require.Equal(t, p.Bin, p.Files[0].From)
	}
}

func TestReleaseNotes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "CHANGELOG.md")
	require.NoError(t, os.WriteFile(file, []byte("# Changelog\n\n## 0.2.0 (2026-12-01)\n\n### Added\n\n- b\n\n## 0.1.0\n\n- a\n\n## 0.0.1\n"), 0o600))
	for version, want := range map[string]string{"v0.2.0": "# Zonewise v0.2.0\n\n### Added\n\n- b\n", "v0.1.0": "# Zonewise v0.1.0\n\n- a\n"} {
		notes, err := releaseNotes(file, version)
		require.NoError(t, err)
		require.Equal(t, want, notes)
	}
	for version, want := range map[string]string{"v0.0.1": "says nothing about v0.0.1", "v0.3.0": `has no section "## 0.3.0"`, "v0.1": "has no section"} {
		_, err := releaseNotes(file, version)
		require.ErrorContains(t, err, want)
	}
}

func TestRefusals(t *testing.T) {
	t.Setenv("COSIGN_PASSWORD", "wrong")
	locked, _ := newKey(t, "secret")
	text := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(text, []byte("secret"), 0o600))
	for want, args := range map[string][]string{
		`unknown command ""`:  nil,
		`-version: "0.1"`:     {"build", "-version", "0.1"},
		"does not decrypt it": {"build", "-version", "v0.1.0", "-key", locked},
		"is not in PEM":       {"build", "-version", "v0.1.0", "-key", text},
		"no such file":        {"build", "-version", "v0.1.0", "-key", text + "2"},
		"provided but not":    {"build", "-varsion", "v0.1.0"},
		"oci: no such file":   {"push", "-from", t.TempDir()},
	} {
		require.ErrorContains(t, run(t.Context(), args, io.Discard), want)
	}
}
