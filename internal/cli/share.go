package cli

import (
	"time"

	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
)

// ShareFiles returns the files of a package below share (/usr/share or /usr/local/share): manual pages, and completion scripts where bash, zsh
// and fish look for them.
func ShareFiles(date time.Time) (map[string][]byte, error) {
	a := newRunner(nil, term.Screen{}, term.Screen{})
	files := map[string][]byte{}
	for name, page := range a.ManPages(a.commands(), date, app.CurrentBuild().Version) {
		files["man/man"+name[len(name)-1:]+"/"+name] = page
	}
	for shell, path := range map[string]string{
		"bash": "bash-completion/completions/muster", "zsh": "zsh/site-functions/_muster", "fish": "fish/vendor_completions.d/muster.fish",
	} {
		script, err := output("muster", "completion", shell)
		if err != nil {
			return nil, err
		}
		files[path] = []byte(script + "\n")
	}
	return files, nil
}
