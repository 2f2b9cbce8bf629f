<#
.SYNOPSIS
Installs this version of the bridge as a Windows service, or upgrades to it.

.DESCRIPTION
It was read by a grammar of PowerShell and never run on a Windows: try it on a machine that can be lost.

Run it as administrator, in the unpacked folder. It does not start a new service: write the
settings to C:\ProgramData\seb\seb.toml first, then Start-Service seb. A service that was running
is running again at the end. Older versions stay in C:\Program Files\seb; to go back, run the
install.ps1 of the older folder.

.PARAMETER Wrapper
The WinSW-x64.exe (2.12 or later). Needed at the first installation only.

.PARAMETER NoWatch
Do not register the scheduled task that restarts a service that hangs.
#>
[CmdletBinding()]
param(
    [string] $Wrapper = (Join-Path $PSScriptRoot 'WinSW-x64.exe'),
    [switch] $NoWatch
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$identity = [Security.Principal.WindowsPrincipal] [Security.Principal.WindowsIdentity]::GetCurrent()
if (-not $identity.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
    throw 'Run this script as administrator.'
}
if (-not [Environment]::Is64BitOperatingSystem) { throw 'A 64-bit Windows is needed.' }

# Below Program Files only administrators can write. In C:\ itself every user may change files,
# and so could become this service.
$base = Join-Path $env:ProgramFiles 'seb'
$settings = Join-Path $env:ProgramData 'seb'
$state = Join-Path $env:ProgramData 'scheduled-events-bridge'
$version = (Get-Content (Join-Path $PSScriptRoot 'VERSION') -TotalCount 1).Trim()
$target = Join-Path $base $version
$service = Get-Service seb -ErrorAction SilentlyContinue
$running = $service -and $service.Status -eq 'Running'

if (-not $service -and -not (Test-Path $Wrapper)) {
    throw "WinSW is needed to run seb as a service: save WinSW-x64.exe in this folder, or name it with -Wrapper."
}

# 1. The program, in a folder with its version as name.
if ((Resolve-Path $PSScriptRoot).Path -ne $target -and -not (Test-Path $target)) {
    New-Item -ItemType Directory -Force $base | Out-Null
    $part = "$target.part"
    if (Test-Path $part) { Remove-Item -Recurse -Force $part }
    Copy-Item -Recurse $PSScriptRoot $part
    Move-Item $part $target
}
& (Join-Path $target 'seb.exe') version | Out-Null
if ($LASTEXITCODE -ne 0) { throw "$target\seb.exe does not start (exit code $LASTEXITCODE)." }

# 2. The service uses what `current` leads to.
if ($running) { Stop-Service seb }
$current = Join-Path $base 'current'
if (Test-Path $current) { (Get-Item $current).Delete() }   # the link, not what it leads to
New-Item -ItemType Junction -Path $current -Target $target | Out-Null
Copy-Item -Force (Join-Path $target 'seb-service.xml') (Join-Path $base 'seb-service.xml')
Copy-Item -Force (Join-Path $target 'watch.ps1') (Join-Path $base 'watch.ps1')

# 3. An account of its own: no password, and no more rights than a user has.
if (-not $service) {
    Copy-Item -Force $Wrapper (Join-Path $base 'seb-service.exe')
    & (Join-Path $base 'seb-service.exe') install
    if ($LASTEXITCODE -ne 0) { throw "seb-service.exe install failed (exit code $LASTEXITCODE)." }
    & sc.exe config seb obj= 'NT SERVICE\seb' | Out-Null
    if ($LASTEXITCODE -ne 0) { throw "sc.exe config failed (exit code $LASTEXITCODE)." }
}

# 4. Settings and state hold secrets and decide about reboots: no other user may read or add files.
New-Item -ItemType Directory -Force $settings, (Join-Path $state 'logs') | Out-Null
$admins = '*S-1-5-18:(OI)(CI)F', '*S-1-5-32-544:(OI)(CI)F'   # SYSTEM, Administrators
# A folder that was there before may be another user's, who could give himself any right in it: it and
# all that is in it become the administrators', with the rights of the folder and no others.
function Protect-Folder([string] $Folder, [string] $Service) {
    foreach ($words in @('/setowner', '*S-1-5-32-544', '/T', '/C', '/Q'), @('/reset', '/T', '/C', '/Q'),
        (@('/inheritance:r', '/grant:r') + $admins + $Service)) {
        & icacls.exe $Folder @words | Out-Null
        if ($LASTEXITCODE -ne 0) { throw "icacls $($words[0]) failed for $Folder (exit code $LASTEXITCODE)." }
    }
}
Protect-Folder $settings 'NT SERVICE\seb:(OI)(CI)RX'
Protect-Folder $state 'NT SERVICE\seb:(OI)(CI)M'
$file = Join-Path $settings 'seb.toml'
if (-not (Test-Path $file)) { Copy-Item (Join-Path $target 'seb.toml') $file }

# 5. What restarts a service that hangs.
if (-not $NoWatch) {
    $run = "-NoProfile -ExecutionPolicy Bypass -File `"$(Join-Path $base 'watch.ps1')`""
    $action = New-ScheduledTaskAction -Execute powershell.exe -Argument $run
    $trigger = New-ScheduledTaskTrigger -Once -At (Get-Date) -RepetitionInterval (New-TimeSpan -Minutes 5)
    Register-ScheduledTask seb-watch -Action $action -Trigger $trigger -User SYSTEM -Force | Out-Null
}

if ($running) {
    Start-Service seb
    Write-Output "seb $version is installed and runs."
} else {
    Write-Output "seb $version is installed. Next: edit $file, then run"
    Write-Output "  `$env:SEB_CONFIG = '$file'; & '$current\seb.exe' check"
    Write-Output '  Start-Service seb'
}
