package webhook

import (
	"mime"
	"strings"

	"github.com/muster-dev/muster"
)

// style is the appearance of a message.
type style struct {
	emoji    string // short code of Slack and ntfy
	color    int
	priority string // of ntfy
}

func styleOf(kind string) style {
	switch kind {
	case "job." + string(muster.JobSucceeded):
		return style{"white_check_mark", 0x2e9e4f, "default"}
	case "job." + string(muster.JobFailed), "job." + string(muster.JobTimedOut):
		return style{"x", 0xd13438, "high"}
	case "job." + string(muster.JobCancelled):
		return style{"no_entry_sign", 0x8a8886, "low"}
	case typeWaiting:
		return style{"hourglass_flowing_sand", 0xf2a900, "default"}
	default:
		return style{"bell", 0x0067c0, "default"}
	}
}

// details returns the lines of a message after its sentence.
func (m *message) details() []string {
	var lines []string
	if m.Data.WaitReason != "" {
		lines = append(lines, m.Data.WaitReason)
	}
	for _, f := range m.Data.Failures {
		line := "Task " + f.Task.String()
		if f.Reason != "" {
			line += ": " + string(f.Reason)
		}
		if f.Message != "" {
			line += ": " + f.Message
		}
		lines = append(lines, line)
	}
	return lines
}

// title returns a short title of the message.
func (m *message) title() string {
	if m.Data.Job == nil {
		return "Muster test"
	}
	state := stateText(m.Data.Job.State)
	if m.Type == typeWaiting {
		state = "waits"
	}
	return truncate(m.Data.Job.Name, 100) + " " + state
}

// Slack: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks and the reference of Block Kit.
type (
	slack struct {
		Text   string       `json:"text"` // for desktop notifications
		Blocks []slackBlock `json:"blocks"`
	}
	slackBlock struct {
		Type     string      `json:"type"`
		Text     *slackText  `json:"text,omitempty"`
		Elements []slackText `json:"elements,omitempty"`
	}
	slackText struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
)

func slackBody(m *message) slack {
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace
	text := escape(m.Data.Message)
	head := ":" + styleOf(m.Type).emoji + ": *" + text + "*"
	if m.Data.URL != "" {
		head += "\n<" + escape(m.Data.URL) + "|Open in Muster>"
	}
	body := slack{Text: text, Blocks: []slackBlock{{Type: "section", Text: &slackText{"mrkdwn", head}}}}
	if lines := m.details(); len(lines) > 0 {
		body.Blocks = append(body.Blocks, slackBlock{Type: "section", Text: &slackText{"mrkdwn", "• " + escape(joinLines(lines, "\n• ", 590))}})
	}
	body.Blocks = append(body.Blocks, slackBlock{Type: "context", Elements: []slackText{{"mrkdwn", "Project " + escape(m.Data.Project)}}})
	return body
}

// joinLines joins lines up to limit bytes, and drops the others.
func joinLines(lines []string, separator string, limit int) string {
	text := ""
	for i, l := range lines {
		if i > 0 && len(text)+len(separator)+len(l) > limit {
			return text
		}
		if i > 0 {
			text += separator
		}
		text += truncate(l, limit)
	}
	return text
}

// Discord: https://discord.com/developers/docs/resources/webhook#execute-webhook and the embed object.
type (
	discord struct {
		Content  string         `json:"content"`
		Embeds   []discordEmbed `json:"embeds"`
		Mentions struct {
			Parse []string `json:"parse"` // empty: no text mentions a user
		} `json:"allowed_mentions"`
	}
	discordEmbed struct {
		Title       string         `json:"title"`
		Description string         `json:"description,omitempty"`
		URL         string         `json:"url,omitempty"`
		Timestamp   muster.Time    `json:"timestamp"`
		Color       int            `json:"color"`
		Fields      []discordField `json:"fields"`
	}
	discordField struct {
		Name   string `json:"name"`
		Value  string `json:"value"`
		Inline bool   `json:"inline"`
	}
)

func discordBody(m *message) discord {
	body := discord{Content: m.Data.Message, Embeds: []discordEmbed{{
		Title: m.title(), Description: joinLines(m.details(), "\n", 3000), URL: m.Data.URL, Timestamp: m.Timestamp, Color: styleOf(m.Type).color,
		Fields: []discordField{{"Project", m.Data.Project, true}},
	}}}
	if j := m.Data.Job; j != nil {
		body.Embeds[0].Fields = append(body.Embeds[0].Fields, discordField{"Job", j.ID.String(), true})
	}
	body.Mentions.Parse = []string{}
	return body
}

// ntfyBody returns a message for the URL of an ntfy topic: https://docs.ntfy.sh/publish
func ntfyBody(m *message) (body []byte, headers map[string]string) {
	l := styleOf(m.Type)
	headers = map[string]string{
		"Content-Type": "text/plain; charset=utf-8", "Title": mime.QEncoding.Encode("utf-8", m.title()), "Priority": l.priority, "Tags": l.emoji,
	}
	if m.Data.URL != "" {
		headers["Click"] = m.Data.URL
	}
	return []byte(joinLines(append([]string{m.Data.Message}, m.details()...), "\n", 3500)), headers
}
