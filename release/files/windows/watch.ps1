# Restarts the service if it runs but does not answer: Windows itself restarts only what has ended.
# The task seb-watch runs this every five minutes. /healthz stays 200 while only the metadata
# service or a sink is unreachable, so this restarts nothing for that.
if ((Get-Service seb).Status -ne 'Running') { exit }
foreach ($try in 1..3) {
    try {
        Invoke-WebRequest http://127.0.0.1:9469/healthz -UseBasicParsing -TimeoutSec 10 | Out-Null
        exit
    } catch { Start-Sleep 20 }
}
Restart-Service seb -Force
