package crd

import "strings"

// MaxMessage is how many bytes a message of a condition, or a note of an event, may have. The API server takes no
// longer notes.
const MaxMessage = 1024

// Shortened returns a text, cut between two characters and ended with "..." if it is longer than MaxMessage.
func Shortened(text string) string {
	if len(text) <= MaxMessage {
		return text
	}
	const end = "..."
	return strings.ToValidUTF8(text[:MaxMessage-len(end)], "") + end
}
