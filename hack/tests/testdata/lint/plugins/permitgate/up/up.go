// Package up imports the pack from below.
package up

import "zonewise.dev/plugins" // want depguard

var _ = plugins.Name
