// Package show prints results of the zonewise command: as text, in tables that become lists on a narrow terminal, and
// as JSON or YAML.
package show
