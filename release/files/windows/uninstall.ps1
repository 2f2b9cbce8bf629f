<#
.SYNOPSIS
Removes the service and the program. Settings and state stay, unless -Purge is given.

.DESCRIPTION
It was read by a grammar of PowerShell and never run on a Windows.

.PARAMETER Purge
Also remove C:\ProgramData\seb (settings, secrets) and C:\ProgramData\scheduled-events-bridge
(records that were not delivered yet, logs).
#>
[CmdletBinding()]
param([switch] $Purge)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$identity = [Security.Principal.WindowsPrincipal] [Security.Principal.WindowsIdentity]::GetCurrent()
if (-not $identity.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
    throw 'Run this script as administrator.'
}
$base = Join-Path $env:ProgramFiles 'seb'

if (Get-ScheduledTask seb-watch -ErrorAction SilentlyContinue) {
    Unregister-ScheduledTask seb-watch -Confirm:$false
}
if (Get-Service seb -ErrorAction SilentlyContinue) {
    Stop-Service seb
    & (Join-Path $base 'seb-service.exe') uninstall
    if ($LASTEXITCODE -ne 0) { throw "seb-service.exe uninstall failed (exit code $LASTEXITCODE)." }
}
$current = Join-Path $base 'current'
if (Test-Path $current) { (Get-Item $current).Delete() }   # the link, not what it leads to
if (Test-Path $base) { Remove-Item -Recurse -Force $base }
if ($Purge) {
    foreach ($name in 'seb', 'scheduled-events-bridge') {
        $folder = Join-Path $env:ProgramData $name
        if (Test-Path $folder) { Remove-Item -Recurse -Force $folder }
    }
}
Write-Output 'seb is removed. Azure turns Scheduled Events off for this VM 24 hours after the last request.'
