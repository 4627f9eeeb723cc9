// Package message brings errors into the form of messages for people.
package message

import "strings"

// OneLine returns the text of an error in one line, as all messages of the programs and conditions are.
func OneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
