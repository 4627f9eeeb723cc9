package board

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile writes the page to a file that only its owner may read. An existing file is replaced atomically:
// readers see the whole old page or the whole new one. Errors name the path.
func (p *Page) WriteFile(path string) error {
	var text bytes.Buffer
	if err := p.HTML(&text); err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err == nil {
		_, err = file.Write(text.Bytes())
		if err = cmp.Or(err, file.Sync(), file.Close()); err == nil {
			err = os.Rename(file.Name(), path)
		}
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Unwrap(err)) // without the name of the temporary file
	}
	return nil
}
