package app

import "slices"

// Topic is a help text that does not belong to one command: muster help NAME prints it.
type Topic struct {
	Name, Usage string
	Sections    func() []HelpSection
}

const topicHelp = `{{.Usage}}
{{range call .Sections}}
{{.Title}}:{{range .Rows}}
  {{.Name}}{{"\t"}}{{.Usage}}{{end}}
{{end}}`

// topic returns the topic with this name, nil if there is none.
func (a *App) topic(name string) *Topic {
	if i := slices.IndexFunc(a.Topics, func(t Topic) bool { return t.Name == name }); i >= 0 {
		return &a.Topics[i]
	}
	return nil
}

func (a *App) printTopic(t *Topic) {
	a.printText(topicHelp, t, nil)
}
