package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	lines, err := parse("\x1b[1mZones\x1b[0m\r\n  a  \x1b[32mOK\x1b[0m, \x1b[31mbad\x1b[0m\r\n\r\nreading 1\r\x1b[Kreading 2\r\x1b[Kdone\r\n\r\n")
	require.NoError(t, err)
	require.Equal(t, [][]span{
		{{"bold", "Zones"}},
		{{"", "  a  "}, {"green", "OK"}, {"", ", "}, {"red", "bad"}},
		nil,
		{{"", "done"}},
	}, lines)
	for _, unknown := range []string{"\x1b[35mx", "\x1b[2Jx", "\x1b[3"} {
		_, err := parse(unknown)
		require.Error(t, err, "%q", unknown)
	}
}

func TestPicture(t *testing.T) {
	picture, err := svg("A table & its \"rows\"", "zonewise status", "\x1b[1mA <b>\x1b[0m\n12345678901234567890 &\n")
	require.NoError(t, err)
	var texts []string
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if data, ok := token.(xml.CharData); ok && strings.TrimSpace(string(data)) != "" {
			texts = append(texts, string(data))
		}
	}
	require.Equal(t, []string{style, "$ zonewise status", "A <b>", "12345678901234567890 &"}, texts)
	require.Contains(t, picture, `aria-label="A table &amp; its &#34;rows&#34;"`)
	require.Contains(t, picture, `<svg xmlns="http://www.w3.org/2000/svg" width="208" height="82"`, "22 columns, three lines")
}
