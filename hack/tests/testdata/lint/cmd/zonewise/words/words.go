// Package words is there to be imported.
package words

// Name is all that it has.
const Name = "words"
