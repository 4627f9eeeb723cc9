package board

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's parts
	"encoding/base64"
	"html/template"
	"io"

	"k8s.io/component-base/version"
)

var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/board.css
	pageStyle string
	//go:embed page/board.js
	pageScript string

	templates = template.Must(template.New("board").Parse(pageHTML))
)

// sections are the parts of the page that are updated separately, in their order.
var sections = []string{"head", "summary", "report", "zones", "gangs", "waiting", "policies", "reservations", "workloads"}

// section is one of them.
type section struct {
	ID   string
	HTML template.HTML
}

// contentPolicy admits only the page's own style and script, and its stream of events.
var contentPolicy = "default-src 'none'; style-src " + digest(pageStyle) + "; script-src " + digest(pageScript) +
	"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Title is that of the document.
func (p *Page) Title() string {
	title := "Zonewise board"
	if p.Cluster != "" {
		title = p.Cluster + " · " + title
	}
	return title
}

// sections renders the parts of the page.
func (p *Page) sections() ([]section, error) {
	out := make([]section, 0, len(sections))
	for _, id := range sections {
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, id, p); err != nil {
			return nil, err
		}
		out = append(out, section{ID: id, HTML: template.HTML(text.String())}) //nolint:gosec // html/template wrote it
	}
	return out, nil
}

// document is the data for the template of the whole page.
type document struct {
	Title, Policy, Events, Version string
	Style                          template.CSS
	Script                         template.JS
	HasReport                      bool
	parts                          []section
}

// Section returns a part by its id.
func (d *document) Section(id string) template.HTML {
	for _, s := range d.parts {
		if s.ID == id {
			return s.HTML
		}
	}
	return ""
}

// Rest are the parts that come one after the other.
func (d *document) Rest() []section { return d.parts[2:] }

// HTML writes the page as a document that loads nothing and does not change.
func (p *Page) HTML(w io.Writer) error {
	parts, err := p.sections()
	if err != nil {
		return err
	}
	return writeDocument(w, p.Title(), "", parts, p.Report != nil)
}

// writeDocument writes a page that gets its updates from the address events, or none if that is empty.
func writeDocument(w io.Writer, title, events string, parts []section, report bool) error {
	return templates.ExecuteTemplate(w, "page", &document{
		Title: title, Policy: contentPolicy, Events: events, Version: version.Get().String(),
		Style: template.CSS(pageStyle), Script: template.JS(pageScript), HasReport: report, parts: parts, //nolint:gosec // embedded above
	})
}
