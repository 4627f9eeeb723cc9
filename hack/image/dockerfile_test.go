package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
)

// TestDockerfileMakesTheSameImage compares what the Dockerfile's last stage says with what the command
// makes, so that it does not matter which of the two is used.
func TestDockerfileMakesTheSameImage(t *testing.T) {
	data, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	build, final := stages(t, string(data))

	img, err := newImage(v1.Platform{OS: "linux", Architecture: "amd64"}, nil, source{created: time.Unix(0, 0).UTC()})
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)

	require.Equal(t, []string{"scratch"}, final["FROM"])
	require.Equal(t, []string{config.Config.User}, final["USER"])
	require.Equal(t, config.Config.Env, final["ENV"])
	require.Equal(t, []string{config.Config.WorkingDir}, final["WORKDIR"])
	require.Equal(t, []string{`["` + strings.Join(config.Config.Entrypoint, `", "`) + `"]`}, final["ENTRYPOINT"])
	require.Equal(t, []string{"--from=build /out/ /"}, final["COPY"])
	require.Len(t, final["EXPOSE"], 1)
	require.Contains(t, config.Config.ExposedPorts, final["EXPOSE"][0])
	require.NotContains(t, final, "CMD")

	labels := regexp.MustCompile(`(\S+)="([^"]*)"`).FindAllStringSubmatch(final["LABEL"][0], -1)
	require.Len(t, labels, 4)
	for _, l := range labels {
		require.Equal(t, config.Config.Labels[l[1]], l[2], l[1])
	}

	run := build["RUN"][len(build["RUN"])-1]
	require.Contains(t, run, "CGO_ENABLED=0")
	require.Contains(t, run, strings.Replace("go "+strings.Join(buildArgs("$ldflags"), " "), "-s -w -buildid= $ldflags", `"-s -w -buildid= $ldflags"`, 1))
	require.Contains(t, run, "-o /out/"+program+" ./cmd/scheduler")
}

// stages returns the instructions of the two stages of a Dockerfile, with their arguments in order. It
// knows as much of the syntax as the file uses.
func stages(t *testing.T, dockerfile string) (build, final map[string][]string) {
	t.Helper()
	var all []map[string][]string
	dockerfile = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(dockerfile, "")
	dockerfile = regexp.MustCompile(`\\\n\s*`).ReplaceAllString(dockerfile, "")
	for line := range strings.Lines(dockerfile) {
		instruction, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if instruction == "FROM" {
			all = append(all, map[string][]string{})
		}
		if instruction != "" && len(all) > 0 {
			last := all[len(all)-1]
			last[instruction] = append(last[instruction], args)
		}
	}
	require.Len(t, all, 2)
	return all[0], all[1]
}
