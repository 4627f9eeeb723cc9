package board

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's parts
	"encoding/base64"
	"html/template"
	"io"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/version"

	"zonewise.dev/internal/program"
)

var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/board.css
	pageStyle string
	//go:embed page/board.js
	pageScript string

	templates = template.Must(template.New("board").Funcs(template.FuncMap{
		"policy":  func() string { return contentPolicy },
		"style":   func() template.CSS { return template.CSS(pageStyle) }, //nolint:gosec // embedded above
		"script":  func() template.JS { return template.JS(pageScript) },  //nolint:gosec // embedded above
		"version": func() string { return version.Get().String() },
	}).Parse(pageHTML))
)

// sections are the parts of the page that are updated separately, in their order. A link at the top leads to each that
// has one.
var sections = []section{
	{ID: "head"},
	{ID: "summary"},
	{ID: "report", Link: "Checks"},
	{ID: "zones", Link: "Zones"},
	{ID: "survival", Link: "Loss of a zone"},
	{ID: "gangs", Link: "Gangs"},
	{ID: "waiting", Link: "Waiting"},
	{ID: "policies", Link: "Policies"},
	{ID: "rebalances", Link: "Rebalance"},
	{ID: "reservations", Link: "Reservations"},
	{ID: "workloads", Link: "Workloads"},
}

// section is one of them. HTML is empty if there is nothing to show.
type section struct {
	ID, Link string
	HTML     template.HTML
}

// frame is a page as it is sent.
type frame struct {
	Title string
	Parts []section
	// Events is the address of updates, empty if there are none.
	Events string
}

// contentPolicy admits only the page's own style and script, and its stream of events.
var contentPolicy = "default-src 'none'; style-src " + sourceDigest(pageStyle) + "; script-src " + sourceDigest(pageScript) +
	"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"

func sourceDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// render makes the parts of the page.
func (p *Page) render() *frame {
	f := &frame{Title: "Zonewise board"}
	if p.Cluster != "" {
		f.Title = p.Cluster + " · " + f.Title
	}
	for _, s := range sections {
		var text bytes.Buffer
		// The templates are embedded, and every test of the page renders all of them.
		utilruntime.Must(templates.ExecuteTemplate(&text, s.ID, p))
		s.HTML = template.HTML(text.String()) //nolint:gosec // html/template wrote it
		f.Parts = append(f.Parts, s)
	}
	return f
}

// HTML writes the page as a document that loads nothing and does not change.
func (p *Page) HTML(w io.Writer) error { return p.render().writePage(w) }

// WriteFile writes the page to a file, see program.WriteFile.
func (p *Page) WriteFile(path string) error { return program.WriteFile(path, p.HTML) }

func (f *frame) writePage(w io.Writer) error { return templates.ExecuteTemplate(w, "page", f) }
