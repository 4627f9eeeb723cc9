package main

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// archive writes the files of the layout in dir as a tar. The order of the entries is that of their
// names, and owner, mode and time are fixed, so that equal layouts make equal archives.
func archive(dir, file string, created time.Time) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // fails when it has been renamed, as it should
	if err := writeArchive(tmp, dir, created); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

func writeArchive(w io.Writer, dir string, created time.Time) error {
	root := os.DirFS(dir)
	tw := tar.NewWriter(w)
	// WalkDir goes in lexical order.
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		h := tar.Header{Format: tar.FormatUSTAR, Name: name, ModTime: created}
		if entry.IsDir() {
			h.Typeflag, h.Name, h.Mode = tar.TypeDir, name+"/", 0o755
			return tw.WriteHeader(&h)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		h.Typeflag, h.Mode, h.Size = tar.TypeReg, 0o644, info.Size()
		if err := tw.WriteHeader(&h); err != nil {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(tw, f)
		return err
	})
	if err != nil {
		return err
	}
	return tw.Close()
}
