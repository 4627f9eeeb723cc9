package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// insights is the part of the schema 2.0.0 of Security Insights that the project's file uses; all but what is a pointer
// or has omitempty is required (https://github.com/ossf/security-insights, spec/schema.cue).
type insights struct {
	Header struct {
		SchemaVersion string `json:"schema-version"`
		LastUpdated   string `json:"last-updated"`
		LastReviewed  string `json:"last-reviewed"`
		URL           string `json:"url"`
	} `json:"header"`
	Project struct {
		Name                   string            `json:"name"`
		Homepage               string            `json:"homepage"`
		Administrators         []contact         `json:"administrators"`
		Documentation          map[string]string `json:"documentation,omitempty"`
		Repositories           []repository      `json:"repositories"`
		VulnerabilityReporting struct {
			ReportsAccepted    *bool    `json:"reports-accepted"`
			BugBountyAvailable *bool    `json:"bug-bounty-available"`
			Policy             string   `json:"policy"`
			InScope            []string `json:"in-scope,omitempty"`
			OutOfScope         []string `json:"out-of-scope,omitempty"`
		} `json:"vulnerability-reporting"`
	} `json:"project"`
	Repository struct {
		URL                           string            `json:"url"`
		Status                        string            `json:"status"`
		AcceptsChangeRequest          *bool             `json:"accepts-change-request"`
		AcceptsAutomatedChangeRequest *bool             `json:"accepts-automated-change-request"`
		NoThirdPartyPackages          bool              `json:"no-third-party-packages,omitempty"`
		CoreTeam                      []contact         `json:"core-team"`
		Documentation                 map[string]string `json:"documentation,omitempty"`
		License                       struct {
			URL        string `json:"url"`
			Expression string `json:"expression"`
		} `json:"license"`
		Release *struct {
			AutomatedPipeline  *bool               `json:"automated-pipeline"`
			Changelog          string              `json:"changelog,omitempty"`
			DistributionPoints []map[string]string `json:"distribution-points"`
		} `json:"release,omitempty"`
		Security struct {
			Assessments struct {
				Self struct {
					Comment  string `json:"comment"`
					Evidence string `json:"evidence,omitempty"`
					Date     string `json:"date,omitempty"`
				} `json:"self"`
			} `json:"assessments"`
			Tools []tool `json:"tools,omitempty"`
		} `json:"security"`
	} `json:"repository"`
}

type contact struct {
	Name    string `json:"name"`
	Primary *bool  `json:"primary"`
}

type repository struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Comment string `json:"comment"`
}

type tool struct {
	Name        string          `json:"name"`
	Type        string          `json:"type"`
	Rulesets    []string        `json:"rulesets"`
	Integration map[string]bool `json:"integration"`
	Results     *struct{}       `json:"results"`
	Comment     string          `json:"comment,omitempty"`
}

// TestSecurityInsights: the file has what its schema requires, in its forms, and nothing that the schema does not know.
func TestSecurityInsights(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "SECURITY-INSIGHTS.yml"))
	require.NoError(t, err)
	var file insights
	require.NoError(t, yaml.UnmarshalStrict(data, &file))
	date := regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
	require.Equal(t, "2.0.0", file.Header.SchemaVersion)
	for _, day := range []string{file.Header.LastUpdated, file.Header.LastReviewed, file.Repository.Security.Assessments.Self.Date} {
		require.Regexp(t, date, day)
	}
	urls := []string{file.Header.URL, file.Repository.URL, file.Repository.License.URL, file.Project.VulnerabilityReporting.Policy, file.Repository.Security.Assessments.Self.Evidence}
	for _, r := range file.Project.Repositories {
		urls = append(urls, r.URL)
		require.NotEmpty(t, r.Name)
		require.NotEmpty(t, r.Comment)
	}
	for _, links := range []map[string]string{file.Project.Documentation, file.Repository.Documentation} {
		require.NotEmpty(t, links)
		for _, link := range links {
			urls = append(urls, link)
		}
	}
	for _, url := range urls {
		require.Regexp(t, `^https://\S+$`, url)
	}
	require.NotEmpty(t, file.Project.Name)
	require.NotEmpty(t, file.Project.Repositories)
	for _, contacts := range [][]contact{file.Project.Administrators, file.Repository.CoreTeam} {
		require.NotEmpty(t, contacts)
		for _, c := range contacts {
			require.NotEmpty(t, c.Name)
			require.NotNil(t, c.Primary, c.Name)
		}
	}
	require.NotNil(t, file.Project.VulnerabilityReporting.ReportsAccepted)
	require.NotNil(t, file.Project.VulnerabilityReporting.BugBountyAvailable)
	require.NotNil(t, file.Repository.AcceptsChangeRequest)
	require.NotNil(t, file.Repository.AcceptsAutomatedChangeRequest)
	require.Equal(t, "active", file.Repository.Status)
	require.Equal(t, "Apache-2.0", file.Repository.License.Expression)
	require.NotEmpty(t, file.Repository.Security.Assessments.Self.Comment)
	if release := file.Repository.Release; release != nil {
		require.NotNil(t, release.AutomatedPipeline)
		require.NotEmpty(t, release.DistributionPoints)
	}
	for _, tool := range file.Repository.Security.Tools {
		require.NotEmpty(t, tool.Name)
		require.Contains(t, []string{"fuzzing", "container", "secret", "SCA", "SAST", "other"}, tool.Type)
		require.NotEmpty(t, tool.Rulesets)
		require.Len(t, tool.Integration, 3, tool.Name)
		require.NotNil(t, tool.Results, tool.Name)
	}
}
