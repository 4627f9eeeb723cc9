package config

import "embed"

// FS has the configurations at its root, by file name.
//
//go:embed *.yaml
var FS embed.FS
