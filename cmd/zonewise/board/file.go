package board

import "zonewise.dev/internal/program"

// WriteFile writes the page to a file, see program.WriteFile.
func (p *Page) WriteFile(path string) error { return program.WriteFile(path, p.HTML) }
