package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// commandLine builds zonewise for each platform, one after the other: each compiles Kubernetes.
func (b *build) commandLine(ctx context.Context) error {
	license, err := os.ReadFile(filepath.Join(b.source, "LICENSE"))
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "zonewise-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	archives := map[string]archived{}
	for _, platform := range b.cli {
		fmt.Fprintf(b.progress, "building zonewise for %s\n", platform)
		goos, goarch, _ := strings.Cut(platform, "/")
		program := "zonewise"
		if goos == "windows" {
			program += ".exe"
		}
		file := filepath.Join(tmp, goos+"-"+goarch)
		cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= "+b.ldflags, "-o", file, "./cmd/zonewise")
		cmd.Dir, cmd.Env = b.source, b.environment("GOOS="+goos, "GOARCH="+goarch, "GOAMD64=v1", "GOARM64=v8.0")
		cmd.Stdout, cmd.Stderr = b.progress, b.progress
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if archives[platform], err = b.packProgram(goos, goarch, map[string][]byte{program: data, "LICENSE": license}); err != nil {
			return err
		}
	}
	krew, err := b.krew(archives)
	if err != nil {
		return err
	}
	return b.write("zonewise.krew.yaml", krew)
}

// archived is a file of the release that has a program.
type archived struct{ file, program, sum string }

// packProgram writes the archive of a platform: what its users can open without more programs.
func (b *build) packProgram(goos, goarch string, files map[string][]byte) (archived, error) {
	var (
		data []byte
		err  error
	)
	a := archived{file: fmt.Sprintf("zonewise_%s_%s_%s", b.number(), goos, goarch), program: "zonewise"}
	if goos == "windows" {
		a.file, a.program = a.file+".zip", "zonewise.exe"
		data, err = b.zip(files)
	} else {
		a.file += ".tar.gz"
		data, err = b.archive("", files)
	}
	if err != nil {
		return archived{}, err
	}
	a.sum = fmt.Sprintf("%x", sha256.Sum256(data))
	return a, b.write(a.file, data)
}

func (b *build) zip(files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range sortedKeys(files) {
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: b.when}
		header.SetMode(os.FileMode(modeOf(name)))
		part, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := part.Write(files[name]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// krew makes the manifest of the plugin (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/).
func (b *build) krew(archives map[string]archived) ([]byte, error) {
	type platform struct {
		Selector map[string]map[string]string `json:"selector"`
		URI      string                       `json:"uri"`
		SHA256   string                       `json:"sha256"`
		Bin      string                       `json:"bin"`
		Files    []map[string]string          `json:"files"`
	}
	var list []platform
	for _, name := range b.cli {
		goos, goarch, _ := strings.Cut(name, "/")
		a := archives[name]
		list = append(list, platform{
			Selector: map[string]map[string]string{"matchLabels": {"os": goos, "arch": goarch}},
			URI:      b.downloads + "/" + b.version + "/" + a.file,
			SHA256:   a.sum,
			Bin:      a.program,
			Files:    []map[string]string{{"from": a.program, "to": "."}, {"from": "LICENSE", "to": "."}},
		})
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]string{"name": "zonewise"},
		"spec": map[string]any{
			"version":          b.version,
			"homepage":         "https://zonewise.dev",
			"shortDescription": "Explain zone spreading, held capacity and gangs",
			"description": "Shows policies, reservations and gangs, explains why a pod or a gang waits and what would let it go,\n" +
				"and plays the loss of a zone on a copy of the cluster. It reads with your permissions, and writes nothing.\n",
			"platforms": list,
		},
	})
}

func sortedKeys(files map[string][]byte) []string { return slices.Sorted(maps.Keys(files)) }
