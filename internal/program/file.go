package program

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// WriteFile replaces a file by what write writes. Only its owner may read it, whoever might read the old one. Readers
// see the whole old file or the whole new one, also if the process ends meanwhile. What is there and no regular file is
// not replaced: it is an error. Errors name the path.
func WriteFile(path string, write func(w io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	target := path
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		target = resolved // a link stays one
	}
	file, err := os.CreateTemp(filepath.Dir(target), "."+filepath.Base(target)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, withoutName(err))
	}
	buffered := bufio.NewWriterSize(file, 1<<20)
	err = write(buffered)
	if err == nil {
		err = cmp.Or(buffered.Flush(), file.Sync())
	}
	err = cmp.Or(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), target)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return fmt.Errorf("write %s: %w", path, withoutName(err))
	}
	return nil
}

// withoutName leaves the name of the temporary file out of an error.
func withoutName(err error) error {
	if cause := errors.Unwrap(err); cause != nil {
		return cause
	}
	return err
}
