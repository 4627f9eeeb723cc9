// Package show prints results of the zonewise command: as text for people, in tables that become lists on a narrow
// terminal, and as JSON or YAML for programs.
package show
