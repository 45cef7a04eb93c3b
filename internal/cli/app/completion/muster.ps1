# Completion of muster for PowerShell.
Register-ArgumentCompleter -Native -CommandName muster -ScriptBlock {
    param($word, $line, $cursor)
    $words = @($line.CommandElements | Where-Object { $_.Extent.StartOffset -lt $cursor } | ForEach-Object { $_.Extent.Text })
    $program = $words[0]
    $words = @($words | Select-Object -Skip 1)
    if ($word -eq '') { $words += '' } elseif ($words.Count) { $words[-1] = $word }
    # Before 7.3, PowerShell does not pass empty arguments to programs.
    if ($PSVersionTable.PSVersion -lt [version]'7.3') { $words = @($words | ForEach-Object { if ($_ -eq '') { '""' } else { $_ } }) }
    foreach ($text in @(& $program __complete @words 2>$null)) {
        if ($text.StartsWith(':')) { continue } # without a candidate, PowerShell completes names of files
        $value, $usage = $text -split "`t", 2
        if (-not $usage) { $usage = $value }
        [System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', $usage)
    }
}
