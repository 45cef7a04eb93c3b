package term

const terminalDevice = "CONIN$"
